#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loaded_program.h"

namespace trt_et::hard_use {

// Prints the reason and ends the process.
[[noreturn]] void die(const std::string& what);

Bytes read_file(const std::string& path);

// Of the simulated GPUs; see trt_et_counter().
uint64_t counter(const char* name);
// The text of the last refusal on this thread.
std::string last_error();

// Bytes of this process's heap without the simulated GPUs' memory, which is on it, too.
double host_heap();

void print(const char* name, double value);

// Each writes one byte a case to `results`: see Outcome in flips.cpp.
int flip_in_children(const Bytes& program, const std::string& cases, const std::string& results);
int flip_in_blob(const Bytes& program, const std::string& cases);
int run_cycles(const Bytes& program, uint64_t count);
int run_executes(const Bytes& program, uint64_t count);
int run_soak(const std::vector<Bytes>& programs, double seconds);

}  // namespace trt_et::hard_use
