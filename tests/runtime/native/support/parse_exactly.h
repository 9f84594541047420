// What the mutation fuzzer and libFuzzer do with every blob.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using Bytes = std::vector<uint8_t>;

// Writes an integer, little-endian, as far as the bytes reach.
void put(Bytes& bytes, size_t at, uint64_t value, size_t size);

// Makes the checksum right, where there is a header.
void seal(Bytes& blob);

// A blob, with a checksum or, as Torch-TensorRT writes it, without one.
Bytes pack(const char* magic, const std::string& metadata, const std::string& engine,
           bool checksum);

// Whether the parser takes a blob; checks that what it says of it can be used.
bool parse_exactly(const Bytes& bytes);
