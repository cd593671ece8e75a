#include "app/read_progress.h"

#include <fmt/core.h>

#include "base/units.h"

namespace mantissa {

void ReadProgress::reading(const IngestProgress& p) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double documents = static_cast<double>(p.documents) / seconds;
  const double megabytes = static_cast<double>(p.text_bytes) / 1e6 / seconds;
  show(p.share,
       fmt::format("{} documents · {}/s · {:.1f} MB/s", grouped(p.documents), grouped(static_cast<int64_t>(documents)),
                   megabytes),
       "reading");
}

void ReadProgress::writing(int64_t rows, int64_t of) {
  show(static_cast<double>(rows) / static_cast<double>(of), grouped(rows) + " rows", "writing");
}

void ReadProgress::show(double share, const std::string& text, const char* what) {
  if (!console_.interactive() && Clock::now() - shown_ < std::chrono::seconds(10)) return;
  shown_ = Clock::now();
  console_.status(fmt::format("{} {} {} · {}", what, progress_bar(share, 20), percent_text(share), text));
}

}  // namespace mantissa
