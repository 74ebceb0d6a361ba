"""The public interface: tables and everything a user does with them."""
