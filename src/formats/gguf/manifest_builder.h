// From an open GGUF model to the neutral description that everything above reads.
#pragma once

#include "base/status.h"
#include "formats/gguf/gguf_model.h"
#include "manifest/manifest.h"

namespace bellhop::formats {

// The manifest points into the model's mappings, so `model` (or what it was moved to) must outlive it. Errors name the
// file, the architecture and the key or tensor. An architecture that nobody knows is no error here.
Result<manifest::Manifest> BuildManifest(const GgufModel& model);

}  // namespace bellhop::formats
