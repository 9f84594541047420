# The text of a preprocessor macro of NvInferVersion.h; empty if that cannot be read.
function(read_tensorrt_macro folder name out)
  set(probe "${CMAKE_CURRENT_BINARY_DIR}/version_probe.cpp")
  file(WRITE "${probe}" "#include <NvInferVersion.h>\ntrt_et_probe=${name};\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -E -P "-I${folder}" "${probe}"
                  OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "trt_et_probe=([0-9]+)" found "${text}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Adds libtrt_et_<flavour>_<major>.so from the headers in a folder; `out` gets the target.
function(add_tensorrt_leaf folder flavour out)
  read_tensorrt_macro("${folder}" NV_TENSORRT_MAJOR major)
  read_tensorrt_macro("${folder}" NV_TENSORRT_MINOR minor)
  if(NOT EXISTS "${folder}/NvInferRuntime.h" OR "${major}" STREQUAL "")
    message(FATAL_ERROR "no TensorRT headers in ${folder}: NvInferRuntime.h and NvInferVersion.h "
                        "are wanted")
  endif()
  set(target trt_et_${flavour}_${major}${TRT_ET_LEAF_SUFFIX})
  if(TARGET ${target})
    message(FATAL_ERROR "two folders with the headers of TensorRT ${major}: ${folder} is one")
  endif()
  set(here "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  add_library(${target} MODULE "${here}/library.cpp" "${here}/loaded_engine.cpp"
                               "${here}/provider.cpp" "${here}/result.cpp"
                               "${here}/run_context.cpp")
  target_include_directories(${target} PRIVATE "${here}/../../include" "${here}/..")
  target_include_directories(
    ${target} SYSTEM
    PRIVATE "${folder}" "${here}/cuda_types"
            $<TARGET_PROPERTY:executorch::runtime,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target} PRIVATE C10_USING_CUSTOM_GENERATED_MACROS)
  if(flavour STREQUAL "tensorrt_rtx")
    target_compile_definitions(${target} PRIVATE TRT_ET_TENSORRT_RTX)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE LINKER:--no-undefined)
  message(STATUS "TensorRT ${major}.${minor} headers in ${folder}: lib${target}.so")
  set(${out} ${target} PARENT_SCOPE)
endfunction()
