#include "base/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "base/signal.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

TEST(Console, InAFileEveryStatusIsALine) {
  const TempFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  std::FILE* error = std::fopen((folder / "error").c_str(), "w");
  {
    Console console(false, out, error);
    EXPECT_FALSE(console.interactive());
    EXPECT_FALSE(console.color());
    console.line("head");
    console.status("step 1 " + std::string(200, 'x'));
    console.status("step 2");
    console.warn("careful");
    console.flush();
  }
  std::fclose(out), std::fclose(error);
  EXPECT_EQ(read_text(folder / "out"), "head\nstep 1 " + std::string(200, 'x') + "\nstep 2\n");
  EXPECT_EQ(read_text(folder / "error"), "warning: careful\n");
}

TEST(Console, QuietSaysWarningsAlone) {
  const TempFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  {
    Console console(true, out, out);
    console.line("head");
    console.status("step 1");
    console.warn("careful");
  }
  std::fclose(out);
  EXPECT_EQ(read_text(folder / "out"), "warning: careful\n");
}

// What a console writes to a terminal of `columns`.
std::string on_terminal(int columns, void (*body)(Console&)) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_GE(master, 0);
  EXPECT_EQ(::grantpt(master), 0);
  EXPECT_EQ(::unlockpt(master), 0);
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  EXPECT_GE(slave, 0);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(::ioctl(slave, TIOCSWINSZ, &size), 0);
  std::string read;
  std::FILE* out = ::fdopen(slave, "w");
  std::thread reader([&] {
    char chunk[256];
    for (ssize_t n; (n = ::read(master, chunk, sizeof chunk)) > 0;) read.append(chunk, static_cast<size_t>(n));
  });
  {
    Console console(false, out, out);
    body(console);
  }
  std::fclose(out);
  reader.join();
  ::close(master);
  return read;
}

TEST(Console, OnATerminalTheStatusRedrawsWithinTheWidth) {
  ASSERT_EQ(setenv("TERM", "xterm", 1), 0);
  ASSERT_EQ(unsetenv("NO_COLOR"), 0);
  const std::string text = on_terminal(12, [](Console& console) {
    EXPECT_TRUE(console.interactive());
    EXPECT_TRUE(console.color());
    EXPECT_EQ(console.width(), 12);
    console.status("step 1");
    console.status("step 2 · a long tail");
    console.line("note");
    console.end_status();
    console.line("end");
  });
  EXPECT_EQ(text, "step 1\r\x1b[Kstep 2 · a…\r\x1b[Knote\r\nstep 2 · a…\r\nend\r\n");
  ASSERT_EQ(setenv("NO_COLOR", "1", 1), 0);
  on_terminal(80, [](Console& console) { EXPECT_FALSE(console.color()); });
  unsetenv("NO_COLOR");
}

TEST(Console, AFullDiskIsAnError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "no /dev/full here";
  {
    Console console(false, full, stderr);
    console.line("lost");
    error_of(Exit::kStorage, [&] { console.flush(); });
  }
  std::fclose(full);
}

TEST(Console, FitsAndBars) {
  EXPECT_EQ(text_columns("a·b"), 3);
  EXPECT_EQ(fit("a·b", 3), "a·b");
  EXPECT_EQ(fit("a·bc", 3), "a·…");
  EXPECT_EQ(fit("abc", 0), "");
  EXPECT_EQ(progress_bar(0.5, 4), "██░░");
  EXPECT_EQ(progress_bar(7, 2), "██");
  EXPECT_EQ(progress_bar(-1, 2), "░░");
}

TEST(Signal, TheFirstSetsAFlagTheSecondLeaves) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      catch_stop_signals();
      if (stop_requested()) ::_exit(1);
      throw_if_stopped("starting");
      ::raise(number);
      if (stop_signal() != number) ::_exit(2);
      try {
        throw_if_stopped("step 3");
        ::_exit(3);
      } catch (const Error& error) {
        if (error.code() != Exit::kInterrupted) ::_exit(4);
        if (std::string(error.what()).find("while step 3") == std::string::npos) ::_exit(5);
      }
      ::raise(SIGTERM);
      ::_exit(6);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  }
}

}  // namespace
}  // namespace mantissa
