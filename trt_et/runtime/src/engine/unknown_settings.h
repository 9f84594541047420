// Settings that nobody reads: most are misspelt.
#pragma once

#include <string>
#include <vector>

namespace trt_et {

// Logs a line with the known name that is nearest, once in a process for each name. `kind` is what
// the setting is: "load option".
void report_unknown(const char* kind, const std::string& name,
                    const std::vector<std::string>& known);

// The same for variables of the environment that begin with TRT_ET_, and for values of TRT_ET_LOG.
// `options`: names of variables that are options.
void report_unknown_variables(const std::vector<std::string>& options);

}  // namespace trt_et
