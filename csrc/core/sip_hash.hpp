// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): a keyed hash of short messages. Without the key
// it can be neither computed nor used to learn the key, so it proves knowledge of a secret without revealing it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace syntony {

using SipKey = std::array<std::uint64_t, 2>;
using SipHash = std::array<std::uint64_t, 2>;

[[nodiscard]] constexpr SipHash sip_hash(const SipKey& key, std::string_view message) {
  std::array<std::uint64_t, 4> v{key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL ^ 0xeeU,
                                 key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
  const auto rounds = [&v](int count) {
    for (int i = 0; i < count; ++i) {
      v[0] += v[1];
      v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[1];
      v[0] += v[3];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  };
  for (std::size_t begin = 0; begin <= message.size(); begin += 8) {
    std::uint64_t word = 0;
    const std::string_view part = message.substr(begin, 8);
    for (std::size_t i = 0; i < part.size(); ++i) word |= std::uint64_t{static_cast<unsigned char>(part[i])} << 8 * i;
    if (part.size() < 8) word |= std::uint64_t{message.size() & 0xffU} << 56U;  // it ends with the length
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
  }
  SipHash hash{};
  v[2] ^= 0xeeU;
  rounds(4);
  hash[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
  v[1] ^= 0xddU;
  rounds(4);
  hash[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
  return hash;
}

/// Derives a key from a secret of any length, which should hold at least 128 bits of entropy.
[[nodiscard]] constexpr SipKey sip_key_of(std::string_view secret) { return sip_hash({}, secret); }

// The first test vector of the authors' reference implementation (vectors_sip128): key 00 .. 0f, empty message.
static_assert(sip_hash({0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL}, "") ==
              SipHash{0xe6a825ba047f81a3ULL, 0x930255c71472f66dULL});

}  // namespace syntony
