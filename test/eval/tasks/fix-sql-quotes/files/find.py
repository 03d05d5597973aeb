"""Prints a customer's address: python3 find.py NAME"""
import sqlite3
import sys


def find(db, name):
    row = db.execute(f"SELECT email FROM customers WHERE name = '{name}'").fetchone()
    return row[0] if row else None


if __name__ == "__main__":
    email = find(sqlite3.connect("customers.db"), sys.argv[1])
    if email is None:
        print("not found")
        sys.exit(1)
    print(email)
