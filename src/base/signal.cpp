#include "base/signal.h"

#include <signal.h>
#include <unistd.h>

#include "base/error.h"

namespace mantissa {
namespace {

volatile sig_atomic_t g_stop_signal = 0;

void on_signal(int number) {
  if (g_stop_signal != 0) ::_exit(128 + number);
  g_stop_signal = number;
}

const char* signal_name(int number) {
  return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : number == SIGUSR1 ? "SIGUSR1" : "a signal";
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    check(::sigaction(number, &action, nullptr) == 0, "sigaction({}) failed", number);
}

int stop_signal() { return g_stop_signal; }

void clear_stop_signal() { g_stop_signal = 0; }

void throw_if_stopped(std::string_view doing) {
  if (stop_requested())
    fail(Exit::kInterrupted, "stopped by {} while {}; nothing of that is kept, the same command begins it again",
         signal_name(stop_signal()), doing);
}

}  // namespace mantissa
