#pragma once

void test_bad_calls();
void test_blob_edits();
void test_blob_fuzz();
void test_crc32c();
void test_cuda_rules(const char* blob_file);
void test_provider_shapes();
void test_provider_streams_and_scratch();
void test_kernel_saver();
void test_long_runs();
void test_network_blob();
void test_program_file(const char* path);
void test_networks();
void test_onnx_provider(const char* blob_file);
void test_many_faults();
void test_many_threads();
void test_real_cuda();
void test_simulator();
void test_state();
void test_streams();
void test_tensorrt_provider();
void test_delegate(const char* blob_file);
void test_reference_state(const char* blob_file);
void test_fresh_process(const char* blob_file);
void test_beside_cuda_backend();
