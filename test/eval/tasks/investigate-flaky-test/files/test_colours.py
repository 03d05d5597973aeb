import unittest

import settings


class Colours(unittest.TestCase):
    def setUp(self):
        settings.set("mark", "?")

    def tearDown(self):
        settings.reset()

    def test_default(self):
        self.assertEqual(settings.get("colour"), "blue")

    def test_change(self):
        settings.set("colour", "red")
        self.assertEqual(settings.get("colour"), "red")
