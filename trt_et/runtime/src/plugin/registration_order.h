// Whether somebody else will register a device allocator.
#pragma once

namespace trt_et {

// True if the program, or a library in it, calls ExecuTorch's registration of device allocators.
// Where that is done by a static initializer, it may run after this library's own: ExecuTorch ends
// the process at a second allocator, so ours must not come first.
bool another_module_registers_allocators();

}  // namespace trt_et
