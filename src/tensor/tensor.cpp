#include "tensor/tensor.h"

namespace mantissa {

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i ? "," : "", dims_[i]);
  return text + "]";
}

}  // namespace mantissa

fmt::format_context::iterator fmt::formatter<mantissa::Shape>::format(const mantissa::Shape& shape,
                                                                      format_context& context) const {
  return fmt::format_to(context.out(), "{}", shape.str());
}
