import unittest

import pages


class Pages(unittest.TestCase):
    def test_count(self):
        self.assertEqual(pages.page_count(35, 10), 4)
        self.assertEqual(pages.page_count(30, 10), 3)
        self.assertEqual(pages.page_count(0, 10), 0)

    def test_page(self):
        items = list(range(1, 36))
        self.assertEqual(pages.page(items, 1, 10), list(range(1, 11)))
        self.assertEqual(pages.page(items, 4, 10), [31, 32, 33, 34, 35])

    def test_span(self):
        self.assertEqual(pages.span(2, 10, 35), "11-20 of 35")
        self.assertEqual(pages.span(4, 10, 35), "31-35 of 35")


if __name__ == "__main__":
    unittest.main()
