no() { echo "$*"; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
[ ! -e shop.py ] || no "shop.py is still there"
for m in __init__ prices stock orders; do [ -f shop/$m.py ] || no "there is no shop/$m.py"; done
got=$(python3 main.py 2>&1 | tr '\n' ';')
[ "$got" = "order of 11.50 EUR EUR 0.05 EUR;only 0 of cake;" ] || no "main.py prints: $got"
grep -q '^from shop import CURRENCY, Order, Stock, parse_price$' main.py || no "main.py was changed"
python3 - <<'END' || exit 1
import ast, pathlib
want = {"prices": {"Price", "parse_price"}, "stock": {"Stock"}, "orders": {"Order"}, "__init__": set()}
for module, names in want.items():
    tree = ast.parse(pathlib.Path(f"shop/{module}.py").read_text())
    found = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    if found != names:
        raise SystemExit(f"shop/{module}.py defines {sorted(found)}, not {sorted(names)}")
import shop, shop.orders, shop.prices, shop.stock
for name in ("Price", "parse_price", "Stock", "Order", "CURRENCY"):
    if not hasattr(shop, name):
        raise SystemExit(f"shop has no {name}")
if shop.Price is not shop.prices.Price or shop.Order is not shop.orders.Order:
    raise SystemExit("a class is there twice")
END
