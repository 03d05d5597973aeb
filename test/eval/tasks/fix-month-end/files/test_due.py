import datetime
import unittest

import due


class Due(unittest.TestCase):
    def test_every_month(self):
        got = due.due(datetime.date(2024, 3, 5), 3)
        self.assertEqual([str(d) for d in got], ["2024-03-05", "2024-04-05", "2024-05-05"])


if __name__ == "__main__":
    unittest.main()
