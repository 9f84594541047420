// Lines of ExecuTorch's log that are of no use to anyone.
#pragma once

namespace trt_et {

// Drops the lines of cpuinfo_utils.cpp: when ExecuTorch's thread pool is first used on x86-64, it
// logs which of Arm's files it does not find. Call it again if another function may have replaced
// the log's since.
void drop_cpuinfo_lines();

}  // namespace trt_et
