// The architectures that the engine can run.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"

namespace bellhop::model {

std::vector<std::string_view> SupportedArchitectures();

// kUnsupported names the architecture and lists the supported ones.
Result<ModelSpec> BuildSpec(const manifest::Manifest& manifest);

}  // namespace bellhop::model
