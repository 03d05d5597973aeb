import unittest

from cart import Cart


class CartTest(unittest.TestCase):
    def test_empty(self):
        self.assertEqual(Cart().total(), 0)

    def test_counts(self):
        cart = Cart()
        cart.add("pencil", 120, count=3)
        cart.add("paper", 450)
        self.assertEqual(cart.total(), 3 * 120 + 450)

    def test_discount(self):
        cart = Cart()
        cart.add("book", 1999)
        self.assertEqual(cart.total(discount_percent=10), 1800)

    def test_refuses_nothing(self):
        with self.assertRaises(ValueError):
            Cart().add("air", 1, count=0)


if __name__ == "__main__":
    unittest.main()
