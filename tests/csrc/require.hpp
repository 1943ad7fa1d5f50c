// Requirements of test programs: the first one that fails ends the program with an explanation.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

inline void require(bool truth, const std::string& what) {
  if (truth) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::_Exit(1);
}
