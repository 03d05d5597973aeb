NAME = "shop"
DEBUG = False
