#include "cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace bellhop::cuda {
namespace {

nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("bellhop");
  return domain;
}

}  // namespace

NvtxRange::NvtxRange(const char* name, uint64_t bytes) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = bytes;
  nvtxDomainRangePushEx(Domain(), &attributes);
}

NvtxRange::~NvtxRange() { nvtxDomainRangePop(Domain()); }

}  // namespace bellhop::cuda
