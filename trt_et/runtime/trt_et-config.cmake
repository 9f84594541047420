# find_package(trt_et): the target trt_et::backend, the plugin of an installed wheel.
#
#   cmake -DCMAKE_PREFIX_PATH="$(python -c 'import trt_et.runtime; print(trt_et.runtime.cmake_folder())')"
#
# Linking it is enough: it registers the backend, and the CUDA allocator where there is none.
if(NOT TARGET trt_et::backend)
  get_filename_component(trt_et_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
  set(trt_et_library "${trt_et_root}/lib/libtrt_et_backend.so")
  if(NOT EXISTS "${trt_et_library}")
    set(trt_et_FOUND FALSE)
    set(trt_et_NOT_FOUND_MESSAGE "${trt_et_library} is not there: pip install trt-et again")
    return()
  endif()
  add_library(trt_et::backend SHARED IMPORTED)
  set_target_properties(
    trt_et::backend PROPERTIES IMPORTED_LOCATION "${trt_et_library}"
                               INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/include")
  # A program need not refer to any of its symbols, and the linker would drop it.
  set_property(
    TARGET trt_et::backend
    PROPERTY INTERFACE_LINK_OPTIONS
             "LINKER:--push-state,--no-as-needed,${trt_et_library},--pop-state"
             "LINKER:-rpath,${trt_et_root}/lib")
endif()
