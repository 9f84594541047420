# ExecuTorch's executor_runner, with the TensorRT backend linked in.
add_executable(
  executor_runner
  "${CMAKE_CURRENT_LIST_DIR}/flags.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/main.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/memory.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/print_memory.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/outputs.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/inputs.cpp")
target_link_libraries(
  executor_runner
  PRIVATE trt_et::backend executorch::runtime executorch::kernels_optimized
          executorch::backend_xnnpack executorch::threadpool executorch::etdump)
# The quantized kernels clash only with ExecuTorch's export-time plugin, which no program of C++ has.
if(TARGET executorch::kernels_quantized)
  target_link_libraries(executor_runner PRIVATE executorch::kernels_quantized)
endif()
target_link_libraries(executor_runner PRIVATE trt_et_warnings)
target_link_options(executor_runner PRIVATE LINKER:--enable-new-dtags)
set_target_properties(executor_runner PROPERTIES BUILD_RPATH "${executorch_library_folder}")
install(TARGETS executor_runner RUNTIME DESTINATION trt_et/runtime/bin)
