// Runs before anything is painted. Elements of style that libraries make get the nonce that
// the page's policy asks for, and the theme is the one that was chosen last.
(function () {
  var nonce = document.currentScript.nonce;
  var make = document.createElement;
  document.createElement = function (name, options) {
    var e = make.call(document, name, options);
    if (String(name).toLowerCase() === "style") e.setAttribute("nonce", nonce);
    return e;
  };
  var theme = null;
  try { theme = localStorage.getItem("skete.theme"); } catch (_) { /* storage is off */ }
  if (theme === "light" || theme === "dark" || theme === "contrast") document.documentElement.dataset.theme = theme;
})();
