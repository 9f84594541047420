# Finds the ExecuTorch to build for and makes the target trt_et_executorch from it, which the plugin
# compiles against and links. In this order:
#
#   1. targets that the project already has: of ExecuTorch's source tree (add_subdirectory), of an
#      installed source build or of the wheel (find_package)
#   2. an installed source build in -Dexecutorch_ROOT=<prefix>
#   3. the wheel of Python3_EXECUTABLE
#
# Sets trt_et_executorch_target, whether the runtime is an archive (trt_et_executorch_is_static), the
# wheel's version (EXECUTORCH_BUILD_VERSION) and the folder of its libraries
# (executorch_library_folder); both are empty for a source build.

# In a source build these targets are the shared runtime, and the runtime as an archive (shared with
# BUILD_SHARED_LIBS). The wheel's is the last one.
macro(find_executorch_target)
  foreach(name executorch_shared executorch-shared executorch_core executorch::runtime)
    if(TARGET ${name} AND NOT trt_et_executorch_target)
      set(trt_et_executorch_target ${name})
    endif()
  endforeach()
endmacro()

set(trt_et_executorch_target "")
find_executorch_target()
if(NOT trt_et_executorch_target AND executorch_ROOT)
  find_package(executorch REQUIRED CONFIG)
  find_executorch_target()
  if(NOT trt_et_executorch_target)
    message(FATAL_ERROR "executorch_ROOT=${executorch_ROOT} has no runtime to link: install a "
                        "source build of ExecuTorch there (cmake --install)")
  endif()
elseif(NOT trt_et_executorch_target)
  find_python_package(executorch executorch_folder)
  if(NOT executorch_folder)
    message(FATAL_ERROR "trt-et compiles against the executorch wheel, and ${Python3_EXECUTABLE} "
                        "has none: pip install 'executorch>=1.5.1,<1.6'; for a source build, "
                        "add_subdirectory(executorch) first, or set executorch_ROOT")
  endif()
  # The package's config looks for "python3" on the PATH otherwise, for something not needed here.
  find_package(executorch 1.5.1 REQUIRED CONFIG NO_DEFAULT_PATH
               PATHS "${executorch_folder}/lib/cmake/executorch")
  find_executorch_target()
  if(NOT trt_et_executorch_target AND NOT EXECUTORCH_RUNTIME_LIBRARY_DIR)
    message(FATAL_ERROR "the executorch found at ${executorch_folder} has no C++ library: "
                        "pip install 'executorch>=1.5.1,<1.6'")
  endif()
endif()

set(trt_et_executorch_is_static OFF)
set(executorch_library_folder "")
add_library(trt_et_executorch INTERFACE)
if(trt_et_executorch_target AND NOT trt_et_executorch_target STREQUAL "executorch::runtime")
  get_target_property(type ${trt_et_executorch_target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    set(trt_et_executorch_is_static ON)
  endif()
  # Not by its usage requirements: a compiler warns of what is in its headers.
  target_link_libraries(trt_et_executorch INTERFACE ${trt_et_executorch_target})
  target_include_directories(
    trt_et_executorch SYSTEM
    INTERFACE $<TARGET_PROPERTY:${trt_et_executorch_target},INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(
    trt_et_executorch
    INTERFACE C10_USING_CUSTOM_GENERATED_MACROS
              $<$<BOOL:${EXECUTORCH_ENABLE_EVENT_TRACER}>:ET_EVENT_TRACER_ENABLED>)
  set(EXECUTORCH_BUILD_VERSION "")
else()
  # The wheel. The plugin needs libexecutorch.so and nothing else of it, so it does not link the
  # target, which brings the thread pool. CMake before 3.28 gets no targets from the wheel.
  if(trt_et_executorch_target)
    get_target_property(library executorch::runtime IMPORTED_LOCATION)
    set(includes $<TARGET_PROPERTY:executorch::runtime,INTERFACE_INCLUDE_DIRECTORIES>)
  else()
    set(library "${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch.so")
    set(includes ${EXECUTORCH_INCLUDE_DIRS})
  endif()
  cmake_path(GET library PARENT_PATH executorch_library_folder)
  target_link_libraries(trt_et_executorch INTERFACE "${library}")
  target_include_directories(trt_et_executorch SYSTEM INTERFACE ${includes})
  target_compile_definitions(trt_et_executorch INTERFACE C10_USING_CUSTOM_GENERATED_MACROS
                                                         ET_EVENT_TRACER_ENABLED)
  # The wheel's targets add the path of this machine's site-packages to every RPATH. A wheel that
  # moves must not carry it; a build by hand adds it itself.
  foreach(target runtime threadpool etdump kernels_optimized kernels_quantized backend_xnnpack)
    if(TARGET executorch::${target})
      get_target_property(options executorch::${target} INTERFACE_LINK_OPTIONS)
      if(options)
        list(FILTER options EXCLUDE REGEX "-rpath,")
        set_property(TARGET executorch::${target} PROPERTY INTERFACE_LINK_OPTIONS "${options}")
      endif()
    endif()
  endforeach()
endif()
