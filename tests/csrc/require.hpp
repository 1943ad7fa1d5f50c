// What test programs demand: the first demand that is not met ends them, with what was wrong.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

inline void require(bool truth, const std::string& what) {
  if (truth) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::_Exit(1);
}
