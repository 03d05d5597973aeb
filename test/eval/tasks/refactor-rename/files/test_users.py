import unittest

import api
import report
import users


class Users(unittest.TestCase):
    def test_get_user(self):
        self.assertEqual(users.get_user(1), "ada")
        self.assertIsNone(users.get_user(9))

    def test_report(self):
        self.assertEqual(report.lines([1, 9]), ["1: ada", "9: unknown"])
        self.assertEqual(report.first([2, 1]), "bob")

    def test_api(self):
        self.assertEqual(api.call("get_user", 2), "bob")
        self.assertEqual(api.call("count"), 3)


if __name__ == "__main__":
    unittest.main()
