// The canonical lane order of dot products: the reference, AVX2 and AVX-512 kernels of the decode class share it and
// are bit-equal, whatever the thread count, row count or ISA (docs/architecture.md, "Numerics").
//
//   - 16 lanes; element e of a row belongs to lane e % 16. All arithmetic is binary32, round to nearest even; "fma"
//     rounds once.
//   - Elements ascending: acc[e % 16] = fma(w[e], x[e], acc[e % 16]). A tail shorter than 16 touches its own lanes
//   only.
//   - The weight is one binary32 number, made from the exact small number `code` that the format's formula multiplies
//   by
//     a scale (zero point and sign applied, IQ1 delta included):
//       w = code * scale, rounded (exact in most formats: code and scale have few bits)
//       w = fma(code, scale, bias) in formats with a minimum (bias = -min) and in planar views with a zero-point plane
//         (code taken with the implicit zero point, bias = (implicit zero point - zero point) * scale, rounded)
//     scale and min are the binary32 values of the formula (d*sc, dmin*mn, ...). Plain formats (F32, F16, BF16) and
//     decoded f32 tiles are weights as they are.
//   - Planar views (quant/planar.h): the reduced sum is multiplied by the view's global scale.
//   - Reduction: a[i] += a[i+8] (i < 8), a[i] += a[i+4] (i < 4), a[i] += a[i+2] (i < 2), a[0] + a[1].
#pragma once

namespace bellhop::kernels {
inline constexpr int kLanes = 16;
}  // namespace bellhop::kernels
