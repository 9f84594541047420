// Whether somebody else will register a device allocator.
#pragma once

namespace trt_et {

// True if the program or a library in it calls ExecuTorch's registration of device allocators, or
// contains ExecuTorch's CUDA backend. A static initializer may do that after this library's own,
// and ExecuTorch ends the process at a second allocator, so ours must not come first.
bool another_allocator_comes();

}  // namespace trt_et
