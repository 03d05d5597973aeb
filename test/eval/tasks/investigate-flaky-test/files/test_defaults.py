import unittest

import settings


class Defaults(unittest.TestCase):
    def test_all_there(self):
        self.assertEqual(sorted(settings.defaults()), ["colour", "greeting", "mark"])

    def test_copy(self):
        mine = dict(settings.defaults())
        mine["greeting"] = "Hi"
        self.assertEqual(settings.get("greeting"), "Hello")

    def test_plain(self):
        known = settings.defaults()
        for key in ("mark",):
            known[key] = known[key].replace("!", ".")
        self.assertEqual(known["colour"], "blue")
