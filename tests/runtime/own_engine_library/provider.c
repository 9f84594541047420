// The provider of a small engine library: float32 tensors of fixed sizes through a chain of
// operators, a letter each ('r': relu, 'n': neg). It runs on simulated GPUs.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "trt_et/engine_provider.h"
#include "trt_et/simulation.h"

#define OK 0
#define NOT_SUPPORTED 0x10
#define INVALID_PROGRAM 0x23
#define OUT_OF_MEMORY 0x21

struct engine {
  char operators[64];
  trt_et_binding bindings[2];
};

struct run {
  char operators[64];
  const float* input;
  float* output;
  size_t count;
};

struct context {
  const struct engine* engine;
  void* addresses[2];
};

static const trt_et_sim_services* gpu;
static _Thread_local const char* last_text = "";

static int failed(int code, const char* text) {
  last_text = text;
  return code;
}

static const char* last_error(void) { return last_text; }

static int probe(const trt_et_engine_request* request) {
  if (strcmp(request->builder, "letters") == 0) return OK;
  return failed(NOT_SUPPORTED, "letters: the engine is of another library");
}

static int load(const trt_et_engine_request* request, void** engine) {
  struct engine* made = calloc(1, sizeof *made);
  if (made == NULL) return failed(OUT_OF_MEMORY, "letters: no memory for an engine");
  if (request->size >= sizeof made->operators || request->binding_count != 2) {
    free(made);
    return failed(INVALID_PROGRAM, "letters: an engine has at most 63 operators, and 2 bindings");
  }
  memcpy(made->operators, request->bytes, request->size);
  memcpy(made->bindings, request->bindings, sizeof made->bindings);
  *engine = made;
  return OK;
}

static int keeps_bytes(void* engine) {
  (void)engine;
  return 0;
}

static int describe(void* engine, size_t index, trt_et_binding* out) {
  *out = ((struct engine*)engine)->bindings[index];
  return OK;
}

static int create_context(void* engine, uint32_t flags, void** context) {
  (void)flags;
  struct context* made = calloc(1, sizeof *made);
  if (made == NULL) return failed(OUT_OF_MEMORY, "letters: no memory for a context");
  made->engine = engine;
  *context = made;
  return OK;
}

static int set_input_shape(void* context, size_t index, const int64_t* dims, int32_t rank) {
  (void)context, (void)index, (void)dims, (void)rank;
  return OK;  // Sizes are fixed, and the delegate has compared them with the bindings.
}

static int prepare(void* context, void* stream) {
  (void)context, (void)stream;
  return OK;
}

static int output_shape(void* context, size_t index, int64_t* dims, int32_t* rank) {
  const trt_et_binding* output = &((struct context*)context)->engine->bindings[index];
  *rank = output->rank;
  memcpy(dims, output->dims, sizeof output->dims);
  return OK;
}

static int set_address(void* context, size_t index, void* address, size_t capacity) {
  (void)capacity;
  ((struct context*)context)->addresses[index] = address;
  return OK;
}

static int run_now(void* argument) {
  const struct run* run = argument;
  for (size_t i = 0; i < run->count; ++i) {
    float value = run->input[i];
    for (const char* op = run->operators; *op != '\0'; ++op) {
      value = *op == 'n' ? -value : value > 0 ? value : 0;
    }
    run->output[i] = value;
  }
  return OK;
}

static int enqueue(void* context, void* stream) {
  const struct context* now = context;
  struct run* run = malloc(sizeof *run);
  if (run == NULL) return failed(OUT_OF_MEMORY, "letters: no memory for a run");
  memcpy(run->operators, now->engine->operators, sizeof run->operators);
  run->input = now->addresses[0];
  run->output = now->addresses[1];
  run->count = 1;
  for (int32_t i = 0; i < now->engine->bindings[0].rank; ++i) {
    run->count *= (size_t)now->engine->bindings[0].dims[i];
  }
  return gpu->launch(stream, run_now, free, run);
}

static const trt_et_engine_provider table = {
    .abi = TRT_ET_PROVIDER_ABI,
    // As of a time when the table had no optional functions.
    .struct_size = offsetof(trt_et_engine_provider, memory_size),
    .alignment = 4,
    .name = "letters",
    .probe = probe,
    .load = load,
    .keeps_bytes = keeps_bytes,
    .describe = describe,
    .free_engine = free,
    .create_context = create_context,
    .free_context = free,
    .set_input_shape = set_input_shape,
    .prepare = prepare,
    .output_shape = output_shape,
    .set_address = set_address,
    .enqueue = enqueue,
    .last_error = last_error,
};

const trt_et_engine_provider* trt_et_open_provider(const trt_et_host* host) {
  return host->abi == TRT_ET_PROVIDER_ABI ? &table : NULL;
}

// Simulated GPUs take engines of libraries with this symbol only (trt_et/simulation.h).
void trt_et_fake_tensorrt_attach(const trt_et_sim_services* services) { gpu = services; }
