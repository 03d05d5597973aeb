import unittest

import settings


class Greetings(unittest.TestCase):
    def test_other(self):
        settings.set("greeting", "Moin")
        self.addCleanup(settings.reset)
        self.assertEqual(settings.get("greeting"), "Moin")

    def test_reset(self):
        settings.set("mark", ".")
        settings.reset()
        self.assertEqual(settings.get("greeting"), "Hello")
