from shop import CURRENCY, Order, Stock, parse_price

stock = Stock()
stock.put("tea", 5, "2.50")
stock.put("cake", 1, "4")
order = Order(stock)
order.add("tea", 3)
order.add("cake")
print(order, CURRENCY, parse_price("0.05"))
try:
    order.add("cake")
except LookupError as e:
    print(e)
