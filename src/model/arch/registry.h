// The architectures that the engine can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"

namespace bellhop::model {

std::vector<std::string_view> SupportedArchitectures();

// kUnsupported names the architecture and lists the supported ones.
Result<ModelSpec> BuildSpec(const manifest::Manifest& manifest);

// Tensors of the file that the spec does not use, as notes for the plan; empty when there are none. A file made for
// another variant of the architecture shows itself here.
std::vector<std::string> UnusedTensorNotes(const manifest::Manifest& manifest, const ModelSpec& spec);

}  // namespace bellhop::model
