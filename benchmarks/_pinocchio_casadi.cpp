// Forward and inverse dynamics of a model of Pinocchio as C by CasADi: MODEL.bin FOLDER. Built by _pinocchio_casadi.py.
#include <pinocchio/autodiff/casadi.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/multibody.hpp>
#include <pinocchio/serialization.hpp>
#include <iostream>
#include <string>

using casadi::SX;
using Vector = Eigen::Matrix<SX, Eigen::Dynamic, 1>;

static Vector symbols(const std::string& name, int n, SX& all) {
  all = SX::sym(name, n);
  Vector x(n);
  for (int i = 0; i < n; ++i) x[i] = all(i);
  return x;
}

int main(int, char** given) {
  pinocchio::Model numbers;
  pinocchio::serialization::loadFromBinary(numbers, std::string(given[1]));
  using Model = pinocchio::ModelTpl<SX>;
  Model model = numbers.cast<SX>();
  pinocchio::DataTpl<SX> data(model);
  SX q, v, u;
  const Vector Q = symbols("q", model.nq, q), V = symbols("v", model.nv, v), U = symbols("u", model.nv, u);
  SX a(model.nv, 1), tau(model.nv, 1);
  pinocchio::aba(model, data, Q, V, U, pinocchio::Convention::LOCAL);
  for (int i = 0; i < model.nv; ++i) a(i) = data.ddq[i];
  pinocchio::rnea(model, data, Q, V, U);
  for (int i = 0; i < model.nv; ++i) tau(i) = data.tau[i];
  casadi::CodeGenerator code("pinocchio_c.c");
  casadi::Function aba("aba", {q, v, u}, {a}), rnea("rnea", {q, v, u}, {tau});
  std::cout << aba.n_instructions() << " " << rnea.n_instructions() << "\n";
  code.add(aba);
  code.add(rnea);
  code.generate(std::string(given[2]) + "/");
}
