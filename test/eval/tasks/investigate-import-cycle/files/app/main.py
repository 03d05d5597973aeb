from app.views import page
from app.settings import NAME

print(page(NAME))
