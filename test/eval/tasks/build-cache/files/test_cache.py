import unittest

from cache import Cache


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.time = 0
        self.cache = Cache(2, 10, lambda: self.time)

    def test_get(self):
        self.cache.put("a", 1)
        self.assertEqual(self.cache.get("a"), 1)
        self.assertIsNone(self.cache.get("b"))
        self.assertEqual(self.cache.get("b", 7), 7)
        self.assertEqual(len(self.cache), 1)

    def test_drops_what_was_not_used(self):
        self.cache.put("a", 1)
        self.cache.put("b", 2)
        self.cache.get("a")
        self.cache.put("c", 3)
        self.assertIsNone(self.cache.get("b"))
        self.assertEqual(self.cache.get("a"), 1)

    def test_time(self):
        self.cache.put("a", 1)
        self.time = 9
        self.assertEqual(self.cache.get("a"), 1)
        self.time = 10
        self.assertIsNone(self.cache.get("a"))
        self.assertEqual(len(self.cache), 0)


if __name__ == "__main__":
    unittest.main()
