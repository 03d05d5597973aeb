python3 fill.py
