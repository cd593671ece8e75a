// The state of an engine, copied out of it and into another.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "train/engine.h"

namespace mantissa::testing {

struct SavedTensor {
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};
using Snapshot = std::map<std::string, SavedTensor>;

inline Snapshot snapshot_of(Engine& engine) {
  Snapshot all;
  engine.visit_state([&](const StateTensor& s) {
    SavedTensor saved{s.tensor.dtype, s.tensor.shape, std::vector<std::byte>(static_cast<size_t>(s.tensor.bytes()))};
    read_state(s, saved.bytes.data());
    EXPECT_TRUE(all.emplace(s.name, std::move(saved)).second) << s.name << " twice";
  });
  return all;
}

// All of a snapshot, but for the kind `left_out`; kind_of() below.
inline std::string kind_of(const std::string& name) {
  const std::string purpose = name.substr(0, name.find('/'));
  return purpose == "engine" ? name : purpose == "scaling" ? purpose + name.substr(name.rfind('.')) : purpose;
}

inline void restore(Engine& engine, const Snapshot& snapshot, const std::string& left_out = "") {
  size_t found = 0;
  engine.visit_state([&](const StateTensor& s) {
    const SavedTensor& saved = snapshot.at(s.name);
    ASSERT_EQ(saved.dtype, s.tensor.dtype) << s.name;
    ASSERT_EQ(saved.shape, s.tensor.shape) << s.name;
    if (kind_of(s.name) != left_out) write_state(s, saved.bytes.data());
    ++found;
  });
  EXPECT_EQ(found, snapshot.size());
}

}  // namespace mantissa::testing
