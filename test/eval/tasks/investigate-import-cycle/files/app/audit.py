from app import rules


def note(text):
    rules.check(text)
    from app.views import page
    return page(text)
