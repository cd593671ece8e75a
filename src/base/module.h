// Libraries beside the executable that are loaded at run time where they are there.
#pragma once

#include <string>

namespace mantissa {

// The function `symbol` of `file`, loaded from the folder of the executable for good; null, and in `absence` why.
void* module_function(const char* file, const char* symbol, std::string& absence);

}  // namespace mantissa
