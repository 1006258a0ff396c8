from apps.exports.api import views

urlpatterns = views.routes
