// The two enumerations that the kernels, the wire and both front ends share. GPU code includes this, too.
#pragma once

namespace syntony {

enum class DType : unsigned char {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  boolean,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float8_e8m0fnu,
};

/// What a Program's `+` means. `avg` and a premultiplied sum are not here: the Communicator scales around a `sum`.
enum class ReduceOp : unsigned char { sum, product, min, max, band, bor, bxor };

}  // namespace syntony
