#!/usr/bin/env python3
"""What routing_to_strp.py makes of an order of experts."""

import struct
import unittest

import routing_to_strp


class RoutingToStrpTest(unittest.TestCase):
    def test_pairs_by_rank_then_layer(self):
        data = routing_to_strp.profile([[2, 0, 1], [1, 2, 0]])
        self.assertEqual(struct.unpack_from("<4s5I", data), (b"STRP", 1, 2, 3, 6, 6))
        pairs = [struct.unpack_from("<2H", data, 24 + 4 * i) for i in range(6)]
        self.assertEqual(pairs, [(0, 2), (1, 1), (0, 0), (1, 2), (0, 1), (1, 0)])
        self.assertEqual(struct.unpack_from("<6i", data, 48), (2, 4, 0, 5, 1, 3))
        self.assertEqual(len(data), 72)

    def test_an_order_with_a_hole(self):
        with self.assertRaisesRegex(SystemExit, "layer 1: not an order of 3 experts"):
            routing_to_strp.profile([[2, 0, 1], [1, 1, 0]])


if __name__ == "__main__":
    unittest.main()
