// The tasks of the verb `tokenizer` that write a tokenizer.
#pragma once

#include <string>
#include <vector>

namespace mantissa {

// Each takes the arguments after its name and returns the exit code.
int tokenizer_train(const std::vector<std::string>& args);
int tokenizer_bytes(const std::vector<std::string>& args);

}  // namespace mantissa
