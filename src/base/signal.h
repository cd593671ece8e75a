// Stopping by signal: the first SIGTERM, SIGINT or SIGUSR1 sets a flag that every loop looks at; a second one leaves
// the process at once with 128 + its number.
#pragma once

#include <string_view>

namespace mantissa {

// To be called once, at the start of a verb that can be stopped.
void catch_stop_signals();
// The signal that asked to stop, or 0.
int stop_signal();
inline bool stop_requested() { return stop_signal() != 0; }
// Throws Exit::kInterrupted when a stop was asked for: "stopped by SIGTERM while <doing>; nothing of that is
// kept, the same command begins it again".
void throw_if_stopped(std::string_view doing);
// Forgets a signal that was seen; for tests.
void clear_stop_signal();

}  // namespace mantissa
