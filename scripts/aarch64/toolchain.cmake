# Debian's cross compiler for aarch64, against ExecuTorch's wheel for aarch64 (scripts/aarch64/setup).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(executorch_DIR "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64/executorch-wheel/executorch/lib/cmake/executorch")
