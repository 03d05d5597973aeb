"""Makes customers.db."""
import os
import sqlite3

if os.path.exists("customers.db"):
    os.remove("customers.db")
db = sqlite3.connect("customers.db")
db.execute("CREATE TABLE customers (name TEXT, email TEXT)")
db.executemany("INSERT INTO customers VALUES (?, ?)", [
    ("Miller", "miller@example.com"),
    ("O'Brien", "obrien@example.com"),
    ("OBrien", "other@example.com"),
    ('The "Duke"', "duke@example.com"),
    ("N'Golo d'Or", "ngolo@example.com"),
])
db.commit()
