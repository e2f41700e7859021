// The canonical lane order of dot products: the reference, AVX2 and AVX-512 kernels of the decode class share it and
// are bit-equal, whatever the thread count, row count or ISA (docs/architecture.md, "Numerics").
//
//   - 16 lanes; element e of a row belongs to lane e % 16. All arithmetic is binary32, round to nearest even; "fma"
//     rounds once.
//   - Formats with scales (traits scale_group G, a multiple of 16), group by group, elements ascending:
//       p[l] = 0; for each element e of the group in lane l: p[l] = fma(code[e], x[e], p[l])
//       acc[l] = fma(scale, p[l], acc[l])
//     and with a minimum:
//       s[l] = 0; for each element e of the group in lane l: s[l] = s[l] + x[e]
//       acc[l] = fma(-min, s[l], acc[l])          (after the scale step of the same group)
//     code is the small exact number that the format's formula multiplies by the scale (zero point and sign applied,
//     IQ1 delta included); scale and min are the binary32 values of that formula (d*sc, dmin*mn, ...).
//   - Planar formats (quant/planar.h): the same with the view's scale groups. code is the code minus the implicit zero
//     point, or the E2M1 number. A zero-point plane adds, after the scale step of each group,
//       acc[l] = fma(bias, s[l], acc[l]),  bias = (implicit zero point - zero point) * scale, rounded
//     The last group may be partial: its elements touch their own lanes, and lanes without an element of the group skip
//     both steps. The reduced sum is multiplied by the view's global scale.
//   - Plain formats (F32, F16, BF16) and decoded f32 tiles: acc[l] = fma(w[e], x[e], acc[l]); a tail shorter than 16
//     touches its own lanes only.
//   - Reduction: a[i] += a[i+8] (i < 8), a[i] += a[i+4] (i < 4), a[i] += a[i+2] (i < 2), a[0] + a[1].
#pragma once

namespace bellhop::kernels {
inline constexpr int kLanes = 16;
}  // namespace bellhop::kernels
