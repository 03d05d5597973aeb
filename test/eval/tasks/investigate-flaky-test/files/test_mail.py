import unittest

import mail


class Mail(unittest.TestCase):
    def test_greeting(self):
        self.assertEqual(mail.greeting("Ann"), "Hello Ann!")

    def test_name(self):
        self.assertIn("Bob", mail.greeting("Bob"))
