#pragma once

#include <string>

void test_bad_calls(const std::string& blob_file);
void test_batched_nms();
void test_blob_edits(const std::string& blob_file);
void test_blob_fuzz(const std::string& blob_file);
void test_crc32c(const std::string& blob_file);
void test_cuda_rules(const std::string& blob_file);
void test_provider_shapes();
void test_kernel_saver();
void test_long_runs(const std::string& blob_file);
void test_network_blob(const std::string& blob_file);
void test_networks(const std::string& blob_file);
void test_onnx_provider(const std::string& blob_file);
void test_many_faults(const std::string& blob_file);
void test_many_threads(const std::string& blob_file);
void test_real_cuda(const std::string& blob_file);
void test_simulator(const std::string& blob_file);
void test_state();
void test_streams(const std::string& blob_file);
void test_tensorrt_provider(const std::string& blob_file);
void test_delegate(const std::string& blob_file);
void test_fresh_process(const std::string& blob_file);
void test_beside_cuda_backend(const std::string& blob_file);
